-- Raises an error if apply.sql did not write a definition, because a trigger of another program
-- skipped it. A separate statement, because apply.sql does not see the rows that it wrote.
-- $1  definitions: as in apply.sql
-- One row: true.
SELECT jobctl.require_written(
    'job_definitions',
    chosen => count(*),
    written => count(*) FILTER (
        WHERE CASE
            WHEN definition.id IS NULL THEN false
            -- This transaction has written the row.
            WHEN definition.xmin = pg_current_xact_id()::xid THEN true
            -- apply.sql did not need to write the row.
            ELSE jobctl.definition_keys(definition) = jobctl.definition_keys(wanted)
        END
    )
) AS is_written
FROM jsonb_populate_recordset(NULL::jobctl.job_definitions, $1::jsonb) AS wanted
LEFT JOIN jobctl.job_definitions AS definition USING (name)
