-- Records migrations, functions and views, with checksums of their texts, in the transaction that
-- applied them.
-- $1  versions, NULL for functions and views    $2  names    $3  texts
INSERT INTO jobctl.schema_migrations (version, name, checksum)
SELECT applied.version, applied.name, encode(sha256(convert_to(applied.text, 'UTF8')), 'hex')
FROM unnest($1::integer[], $2::text[], $3::text[]) AS applied (version, name, text)
ON CONFLICT (name) DO UPDATE SET
    checksum = excluded.checksum,
    applied_at = excluded.applied_at
