-- An order and its job, in one transaction, in psql.
\set ON_ERROR_STOP on
\set payload '{"order": 1, "note": "it''s “ok” $1 %s"}'

BEGIN;
INSERT INTO orders (id) VALUES (1);
SELECT jobctl.enqueue('send_receipt', :'payload', key => 'receipt:1') AS id \gset
COMMIT;

BEGIN;
INSERT INTO orders (id) VALUES (2);
SELECT jobctl.enqueue('send_receipt', '{"order": 2}', key => 'receipt:2') AS lost \gset
ROLLBACK;

\set ON_ERROR_STOP off
\o /dev/null
SELECT jobctl.enqueue('send_receipt', '{}', key => 'receipt:1');
\o
\echo :id :LAST_ERROR_SQLSTATE
