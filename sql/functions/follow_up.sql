-- What follows the end of runs in the statement that ends them: the runs that wait for them start
-- or are cancelled, and hooks are enqueued. Returns whether any run may be due now.
CREATE OR REPLACE FUNCTION jobctl.follow_up(runs bigint[])
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    followed record;
BEGIN
    IF runs IS NULL THEN
        RETURN false;
    END IF;
    followed := jobctl.release_followers(runs);
    RETURN jobctl.enqueue_hooks(runs || followed.cancelled)
        OR followed.releases
        OR followed.cancelled <> '{}';
END
$$;
