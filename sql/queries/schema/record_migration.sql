-- Records that a migration is applied, in the transaction of the migration.
-- $1  version    $2  name    $3  text
INSERT INTO jobctl.schema_migrations (version, name, checksum)
SELECT $1::integer, $2::text, encode(sha256(convert_to($3::text, 'UTF8')), 'hex')
