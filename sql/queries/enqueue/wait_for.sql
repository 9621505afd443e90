-- Lets runs that this transaction has enqueued wait for other runs, their predecessors.
-- Arrays of equal length, one element a run and one of its predecessors:
-- $1  runs    $2  predecessors    $3  rules
-- One row: the refused run, with the code and the reason. All NULL: no run was refused.
SELECT refusal.run_id, refusal.code, refusal.reason
FROM jobctl.wait_for($1::bigint[], $2::bigint[], $3::text[]) AS refusal
