-- Records the problems that `jobctl check` reported, an event each. SECURITY DEFINER lets a viewer
-- record alerts, and write no other event. Internal: no part of the contract of the schema.
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
