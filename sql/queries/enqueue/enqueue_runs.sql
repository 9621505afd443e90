-- Enqueues many runs.
-- $1  runs, a JSON object each, with the fields of `NewRun` in src/store/enqueue.rs
-- A row per run, in their order: its answer, see the function try_enqueue.
SELECT
    answer.id,
    answer.result,
    answer.code,
    answer.reason,
    answer.status,
    answer.due_at
FROM jobctl.enqueue_runs($1::text[]::jsonb[]) AS enqueued
CROSS JOIN LATERAL unnest(
    enqueued.ids,
    enqueued.results,
    enqueued.codes,
    enqueued.reasons,
    enqueued.statuses,
    enqueued.due_ats
) WITH ORDINALITY AS answer (id, result, code, reason, status, due_at, ordinal)
ORDER BY answer.ordinal
