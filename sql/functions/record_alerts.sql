-- Records each problem that `jobctl check` reported as an event. SECURITY DEFINER: so a viewer can
-- record alerts, but no other events. Internal: only jobctl calls it.
--   delivery           how the report was sent, or why it could not be; the reason of the events
--   jobs, details      arrays of equal length: one problem an element
CREATE OR REPLACE FUNCTION jobctl.record_alerts(
    host_user text,
    delivery text,
    jobs text[],
    details text[]
)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
    INSERT INTO jobctl.job_events (action, job, recorded_by, host_user, reason, detail)
    SELECT
        'alert',
        alert.job,
        SESSION_USER,
        left(record_alerts.host_user, 1000),
        left(record_alerts.delivery, 1000),
        left(alert.detail, 1000)
    FROM unnest(jobs, details) AS alert (job, detail)
$$;
