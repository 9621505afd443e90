-- Returns why a value of a run to enqueue is wrong, or NULL if all are valid. Internal: only jobctl
-- calls it.
--
--   definition       only NULLs for a built-in job
--   payload_bytes    the length of the payload as text
--   is_backoff       whether `backoff` is valid; NULL: it is the definition's, which was checked
--                    before
--
-- The function has no SET clause, so that the planner can inline it into the statements that use
-- it: a call per run would double the time of a batch. The calling functions pin the search path.
CREATE OR REPLACE FUNCTION jobctl.wrong_value(
    definition jobctl.job_definitions,
    payload jsonb,
    payload_bytes integer,
    key text,
    run_at timestamptz,
    run_in interval,
    queue text,
    max_attempts integer,
    timeout interval,
    backoff text,
    is_backoff boolean,
    key_scope text,
    on_conflict text,
    debounce interval,
    debounce_max interval,
    expires_in interval,
    share text,
    lock text,
    worker text,
    traceparent text,
    caller name
)
RETURNS text
LANGUAGE sql
STABLE
AS $$
    SELECT CASE
        WHEN run_at IS NOT NULL AND run_in IS NOT NULL
            THEN 'run_at and run_in exclude each other'
        WHEN run_at < '0001-01-01 00:00Z' OR run_at >= '10000-01-01 00:00Z'
            THEN 'run_at is out of range; allowed are the years 1 to 9999'
        WHEN extract(epoch FROM run_in) NOT BETWEEN 0 AND 3650 * 86400
            THEN 'run_in is out of range; allowed are 0 to 3650 days'
        WHEN timeout NOT BETWEEN '1 second' AND '30 days'
            THEN 'timeout is out of range; allowed are 1 second to 30 days'
        WHEN max_attempts NOT BETWEEN 1 AND 1000
            THEN 'max_attempts is out of range; allowed are 1 to 1000'
        WHEN queue IS DISTINCT FROM definition.queue
            AND queue !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$'
            THEN 'queue must be 1 to 63 letters, digits or _ . : -'
        WHEN length(backoff) > 1000
            THEN 'backoff is longer than 1000 characters'
        -- The list of control or invisible characters is that of src/text/plain.rs.
        WHEN octet_length(key) NOT BETWEEN 1 AND 255
            OR key ~ (E'^(-|jobctl-run-| +$)|['
                '\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5'
                '\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
                '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3'
                '\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]')
            -- Only enqueue_hooks uses this prefix, and it calls as the schema's owner.
            OR (
                key ~ '^jobctl-hook-'
                AND pg_has_role(caller, CURRENT_USER, 'USAGE') IS NOT TRUE
            )
            THEN 'key must be 1 to 255 bytes, not all blanks, without control or invisible '
                'characters, and must not begin with -, jobctl-run- or jobctl-hook-'
        WHEN key_scope NOT IN ('retained', 'live')
            THEN 'key_scope must be retained or live'
        WHEN key_scope = 'live' AND key IS NULL
            THEN 'key_scope needs a key'
        WHEN on_conflict NOT IN ('same', 'replace', 'error')
            THEN 'on_conflict must be same, replace or error'
        WHEN on_conflict <> 'same' AND key IS NULL
            THEN 'on_conflict needs a key'
        WHEN debounce IS NOT NULL AND on_conflict <> 'replace'
            THEN 'debounce replaces the waiting run, so on_conflict must be replace'
        WHEN (on_conflict = 'replace' OR debounce IS NOT NULL)
            AND (key IS NULL OR key_scope IS DISTINCT FROM 'live')
            THEN 'replace and debounce need a key with the key_scope live'
        WHEN debounce IS NOT NULL AND num_nonnulls(run_at, run_in) > 0
            THEN 'debounce excludes run_at and run_in'
        WHEN extract(epoch FROM debounce) NOT BETWEEN 0 AND 3650 * 86400
            THEN 'debounce is out of range; allowed are 0 to 3650 days'
        WHEN debounce_max IS NOT NULL AND debounce IS NULL
            THEN 'debounce_max needs debounce'
        WHEN extract(epoch FROM debounce_max)
            NOT BETWEEN extract(epoch FROM debounce) AND 3650 * 86400
            THEN 'debounce_max is out of range; allowed are the debounce to 3650 days'
        WHEN extract(epoch FROM expires_in) NOT BETWEEN 1 AND 3650 * 86400
            THEN 'expires_in is out of range; allowed are 1 second to 3650 days'
        WHEN least(octet_length(share), octet_length(lock), octet_length(worker)) < 1
            OR greatest(octet_length(share), octet_length(lock), octet_length(worker)) > 255
            OR share ~ '^(-| +$)'
            OR lock ~ '^(-| +$)'
            OR worker ~ '^(-| +$)'
            OR concat_ws('', share, lock, worker) ~ (E'['
                '\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5'
                '\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
                '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3'
                '\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]')
            THEN concat_ws(
                ', ',
                CASE WHEN share IS NOT NULL THEN 'share' END,
                CASE WHEN lock IS NOT NULL THEN 'lock' END,
                CASE WHEN worker IS NOT NULL THEN 'worker' END
            ) || ' must be 1 to 255 bytes, not all blanks, without control or invisible '
                'characters, and must not begin with -'
        WHEN lock IS NOT NULL AND definition.lock_name IS NOT NULL
            THEN format('the definition has the lock %s; leave lock out', definition.lock_name)
        -- Accept every version but ff: versions differ only after these parts.
        WHEN traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
            OR traceparent ~ '^ff|-0{32}-|-0{16}-'
            THEN 'traceparent must be as in 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
        -- Limit the text and the stored size: a number with a large exponent is short in jsonb, but
        -- long as text, which a claim reads. 262144 bytes are 256 KiB, the longest payload that
        -- `jobctl enqueue` accepts (PAYLOAD_LIMIT in src/job/payload.rs).
        -- For rows that a program inserts directly, only the constraints of the table apply.
        WHEN payload_bytes > 4 * 262144
            THEN 'payload is longer than 1 MiB'
        WHEN pg_column_size(payload) > 8 * 262144
            THEN 'payload takes more than 2 MiB'
        -- PostgreSQL accepts these values, but other JSON readers do not. Each takes more than 100
        -- characters, so shorter payloads need no search.
        WHEN payload_bytes > 100
            AND payload @? 'strict $.**{64 to last} ? (@.type() == "array" || @.type() == "object")'
            THEN 'payload is nested deeper than 64'
        WHEN payload_bytes > 100 AND payload @? 'strict $.** ? (@ >= 1.8e308 || @ <= -1.8e308)'
            THEN 'payload has a number out of range'
        WHEN NOT is_backoff
            THEN 'backoff must be like fixed:1m, exponential:1m..30m, polynomial:10s '
                'or list:1m,5m,30m, up to 30d'
        WHEN coalesce(
            run_at,
            now() + extract(epoch FROM coalesce(run_in, debounce)) * interval '1 second',
            now()
        ) + extract(epoch FROM coalesce(expires_in, definition.expires)) * interval '1 second'
            >= '10000-01-01 00:00Z'
            THEN 'expires_in is out of range; the run would expire after the year 9999'
    END
$$;
