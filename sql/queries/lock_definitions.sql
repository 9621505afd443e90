-- Asks for the one lock of all that apply definitions, until the end of the transaction. Asked again and again
-- by who does not get it, as lock_migrations.sql is, and for its reason.
SELECT pg_try_advisory_xact_lock(x'6a6f6263746d'::bigint) AS locked
