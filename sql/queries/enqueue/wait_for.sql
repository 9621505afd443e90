-- Lets the runs that this transaction has enqueued wait for others.
-- $1  runs    $2  predecessors    $3  rules: one pair an element
-- One row: the run, the code and the reason of a refusal; NULLs: all wait.
SELECT refusal.run_id, refusal.code, refusal.reason
FROM jobctl.wait_for($1::bigint[], $2::bigint[], $3::text[]) AS refusal
