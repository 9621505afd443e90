-- blocked, queued or failed -> cancelled: the oldest runs of a job, if more than `most` wait. Drops
-- two at most, one more than an enqueue adds, so that a limit that was exceeded holds again. Skips
-- locked runs, which may be about to start.
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
    -- Its DETAIL would show the row, and so the payload, to the caller and in the server's log.
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END
$$;
