-- Adds the definition of a load test. The definition is also the test's lock: the test renews
-- updated_at while it runs, see renew.sql. A killed test leaves its definition. After 30 seconds,
-- the next test takes the definition over and changes its id, so the old test can't renew it.
-- One row: the id. Zero rows: another test runs, or a definition with other contents has the name.
INSERT INTO jobctl.job_definitions AS definition (name, kind, action, queue, max_attempts)
VALUES ('jobctl-load', 'shell', '{"command": ["true"]}', 'jobctl-load', 1)
ON CONFLICT (name) DO UPDATE SET
    id = DEFAULT,
    enabled = true,
    paused_at = NULL,
    updated_at = now()
WHERE definition.kind = excluded.kind
    AND definition.action = excluded.action
    AND definition.queue = excluded.queue
    -- A time in the future was written while the database's clock was ahead: it counts as old.
    AND definition.updated_at
        NOT BETWEEN now() - interval '30 seconds' AND now() + interval '1 minute'
RETURNING definition.id
