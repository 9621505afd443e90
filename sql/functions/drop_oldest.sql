-- Cancels the oldest waiting runs of a job if more than `most` wait: blocked, queued or failed ->
-- cancelled. try_enqueue calls it for when_full = 'drop_oldest'. Internal: only jobctl calls it.
--
-- Drops at most two runs a call, one more than the enqueue added, so that a job with too many
-- waiting runs shrinks to its limit. Skips runs that another session has locked, because they may
-- be about to start.
CREATE OR REPLACE FUNCTION jobctl.drop_oldest(job text, most integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
BEGIN
    PERFORM jobctl.end_runs('dropped', ARRAY(
        SELECT oldest.id
        FROM jobctl.job_runs AS oldest
        WHERE oldest.id = ANY (ARRAY(
            -- All waiting runs but the `most` newest.
            SELECT waiting.id
            FROM jobctl.waiting_runs(job, NULL) AS waiting (id)
            ORDER BY waiting.id DESC
            OFFSET most
        ))
            AND oldest.status IN ('blocked', 'queued', 'failed')
        ORDER BY oldest.id
        LIMIT 2
        FOR NO KEY UPDATE SKIP LOCKED
    ));
EXCEPTION WHEN integrity_constraint_violation THEN
    -- Raise the error without its DETAIL, which shows the row with its payload to the caller and in
    -- the server's log.
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END
$$;
