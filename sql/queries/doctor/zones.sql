-- Returns the offsets of time zones by the database's own zone data, in seconds east of UTC.
-- $1  zones    $2  instants, one for each zone
-- A row per zone and instant. NULL: the database does not know the zone.
--
-- The TimeZone setting is set for each zone, for this transaction only. AT TIME ZONE would read
-- names such as CET as abbreviations, which have no summer time.
WITH known AS MATERIALIZED (
    SELECT zone.name
    FROM pg_catalog.pg_timezone_names AS zone
    WHERE zone.name = ANY ($1::text[])
)
SELECT
    wanted.zone,
    wanted.instant,
    CASE
        WHEN known.name IS NULL THEN NULL
        -- Always true: sets the zone for `extract`.
        WHEN set_config('TimeZone', known.name, true) IS NOT NULL
            THEN extract(timezone FROM wanted.instant)::integer
    END AS utc_offset
FROM unnest($1::text[], $2::timestamptz[]) AS wanted (zone, instant)
LEFT JOIN known
    ON known.name = wanted.zone
