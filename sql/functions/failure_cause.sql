-- Returns why an attempt failed, equal for attempts that fail alike: an error of the operating
-- system at the end of the last line of a command's output or of the error, whichever program wrote
-- it; else that line, with `#` for numbers, quoted texts, addresses and paths, so that a viewer may
-- read it; else, if no word is left of it, the error. Internal: no part of the contract of the
-- schema.
CREATE OR REPLACE FUNCTION jobctl.failure_cause(error_type text, error text, output text)
RETURNS text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
    SELECT
        CASE
            WHEN error_type IN ('signal', 'http_status') THEN left(coalesce(error, ''), 200)
            ELSE coalesce(
                system.cause,
                left(nullif(shape.line, ''), 200),
                left(coalesce(error, ''), 200)
            )
        END
    FROM (
        SELECT
            CASE error_type
                WHEN 'exit_code' THEN right(output, 1000)
                ELSE right(error, 1000)
            END AS tail,
            CASE error_type
                -- NULL if this cuts the line.
                WHEN 'exit_code'
                    THEN substring(right(E'\n' || output, 1000), '[\r\n]([^\r\n]*\S)\s*$')
                ELSE left(error, 1000)
            END AS line
    ) AS said
    -- Most texts have no error of the operating system, and a quick look is enough for them.
    -- COLLATE "C": in Turkish, the lower case of I is not i.
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN lower(right(coalesce(output, '') || coalesce(error, ''), 1200) COLLATE "C")
                LIKE ANY (ARRAY[
                    '%no space left%', '%quota exceeded%', '%read-only file%', '%output error%',
                    '%allocate memory%', '%many open files%', '%connection %', '%unreachable%',
                    '%no route%', '%name %'
                ])
                THEN (
                    regexp_match(
                        lower(said.tail COLLATE "C") COLLATE "default",
                        '(no space left on device|disk quota exceeded'
                        '|read-only file system|input/output error'
                        '|cannot allocate memory|too many open files'
                        '|connection refused|connection reset by peer'
                        '|connection timed out|network is unreachable'
                        '|no route to host|(?:temporary failure in )?name resolution'
                        '|name or service not known)'
                        '(?:[^\w\r\n]|os error \d+|; the server is `[^`\r\n]*`)*\s*$'
                    )
                )[1]
        END AS cause
    ) AS system
    -- Quoted texts and addresses. An apostrophe in a word begins no quoted text.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(
            said.line,
            '"(?:[^"\\]|\\.)*"|`[^`]*`|(?<!\w)[bru]?''(?:[^''\\]|\\.)*'''
            '|[\u2018\u201c\u00ab][^\u2019\u201d\u00bb]*[\u2019\u201d\u00bb]|\S+://\S+',
            '#',
            'g'
        ) AS line
    ) AS unquoted
    -- Numbers and paths.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(unquoted.line, '[^\s:;,()]*[0-9@/=\\][^\s:;,()]*', '#', 'g') AS line
    ) AS unnumbered
    -- Nothing is left of the last lines of a stack in Java and of an exception in Node.js, and of a
    -- line without three letters in a row. Not [:alpha:], which depends on the locale: in C, only A
    -- to Z are letters.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(
            unnumbered.line,
            '^(?:\s*\.\.\. # more|Node\.js #'
            '|[^A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]*'
            '(?:[A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]{1,2}'
            '[^A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]+)*'
            '[A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]{0,2})$',
            ''
        ) AS line
    ) AS shape
$$;
