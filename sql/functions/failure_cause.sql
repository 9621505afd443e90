-- Returns the cause of a failed attempt: a text that is the same for attempts that fail alike.
-- name_incident compares it. Internal: only jobctl calls it.
--
-- The last line is that of the output if a command failed with an exit code, otherwise the error.
-- The cause is the first of these that exists, at most 200 characters:
--   1. for a signal or an HTTP status: the error
--   2. an error of the operating system at the end of the last line, whichever program wrote it
--   3. the last line, if a word is left; with `#` for each number, quoted text, address and path,
--      so that viewers may read it
--   4. the error
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
                -- NULL if the last line is longer than 1,000 characters. The \n in front is for an
                -- output of one line: the pattern begins with the end of the line before.
                WHEN 'exit_code'
                    THEN substring(right(E'\n' || output, 1000), '[\r\n]([^\r\n]*\S)\s*$')
                ELSE left(error, 1000)
            END AS line
    ) AS said
    -- Most texts have no error of the operating system. For them, LIKE saves the slow regular
    -- expression; it reads the end of the output and the error at once. COLLATE "C": in Turkish,
    -- the lower case of I is not i. COLLATE "default": in C, \w matches only letters of ASCII.
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
    -- Replaces quoted texts and addresses. An apostrophe within a word does not begin a quoted
    -- text.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(
            said.line,
            '"(?:[^"\\]|\\.)*"|`[^`]*`|(?<!\w)[bru]?''(?:[^''\\]|\\.)*'''
            '|[\u2018\u201c\u00ab][^\u2019\u201d\u00bb]*[\u2019\u201d\u00bb]|\S+://\S+',
            '#',
            'g'
        ) AS line
    ) AS unquoted
    -- Replaces words with a digit, @, /, = or \, such as numbers, paths and mail addresses.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(unquoted.line, '[^\s:;,()]*[0-9@/=\\][^\s:;,()]*', '#', 'g') AS line
    ) AS unnumbered
    -- Empties lines that do not name a cause: the last line of a stack in Java, that of an
    -- exception in Node.js, and lines without three letters in a row. Not [:alpha:], which depends
    -- on the locale: in C, only A to Z are letters.
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
