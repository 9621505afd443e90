-- Returns those of `runs` that their locks let start, in the given order; runs without a lock are
-- always among them. Internal: only jobctl calls it.
--
-- Locks the slot of each lock until the end of the transaction, and then counts the running runs
-- with a later snapshot. So no two claims count the same lock at the same time. Leaves out runs
-- whose slot another claim has locked. `skipped_job` is the job of one of these, or NULL.
CREATE OR REPLACE FUNCTION jobctl.within_locks(INOUT runs bigint[], OUT skipped_job text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    -- The lock of each run; empty: the run has none.
    locks text[];
    -- The slots that this call has locked.
    slots integer[];
    skipped bigint;
BEGIN
    locks := ARRAY(
        SELECT coalesce(definition.lock_name, run.lock, '')
        FROM unnest(runs) WITH ORDINALITY AS chosen (id, place)
        JOIN jobctl.job_runs AS run ON run.id = chosen.id
        LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        ORDER BY chosen.place
    );
    IF NOT EXISTS (SELECT FROM unnest(locks) AS lock WHERE lock <> '') THEN
        RETURN;
    END IF;
    slots := ARRAY(
        SELECT slot.slot
        FROM jobctl.job_lock_slots AS slot
        WHERE slot.slot = ANY (ARRAY(SELECT jobctl.lock_slot(lock) FROM unnest(locks) AS lock))
        ORDER BY slot.slot
        FOR NO KEY UPDATE SKIP LOCKED
    );
    WITH chosen AS (
        SELECT
            given.id,
            given.place,
            given.lock,
            jobctl.lock_slot(given.lock) = ANY (slots) AS is_free,
            -- The place of the run among those with the same lock.
            row_number() OVER (PARTITION BY given.lock ORDER BY given.place) AS turn
        FROM unnest(runs, locks) WITH ORDINALITY AS given (id, lock, place)
    )
    SELECT
        coalesce(
            array_agg(chosen.id ORDER BY chosen.place) FILTER (
                WHERE chosen.lock = ''
                    OR chosen.is_free
                    AND chosen.turn + coalesce(running.runs, 0)
                        <= jobctl.most_with_lock(chosen.lock)
            ),
            '{}'
        ),
        min(chosen.id) FILTER (WHERE NOT chosen.is_free AND chosen.lock <> '')
    INTO runs, skipped
    FROM chosen
    LEFT JOIN jobctl.running_locks AS running ON running.lock = chosen.lock;
    skipped_job := (SELECT run.job_type FROM jobctl.job_runs AS run WHERE run.id = skipped);
END
$$;
