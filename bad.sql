SET session_replication_role = replica;
UPDATE jobctl.job_workers SET last_tick_at = now()-interval '3 hours' WHERE worker='web2';
UPDATE jobctl.job_definitions SET next_run_at = now()+interval '1 hour' * (1+length(name)%8) WHERE schedule IS NOT NULL;
-- provider 503 for an evening
INSERT INTO jobctl.job_attempts (run_id,attempt,worker,started_at,finished_at,outcome,error_type,error,http_status)
 SELECT id,1,'web'||1+id%2,finished_at-interval '5 min',finished_at-interval '5 min','failed','http_status','HTTP status 503',503 FROM jobctl.job_runs WHERE job_type='mail_invoices' AND finished_at BETWEEN now()-interval '15 hours' AND now()-interval '11 hours' AND status = 'succeeded';
UPDATE jobctl.job_runs SET attempts=2 WHERE id IN (SELECT run_id FROM jobctl.job_attempts);
-- full disk
WITH f AS (INSERT INTO jobctl.job_runs (job_type,status,attempts,created_at,started_at,failed_at,finished_at,error_type,last_error,share)
 SELECT 'thumbnails', CASE WHEN n<=20 THEN 'dead' ELSE 'succeeded' END, CASE WHEN n<=20 THEN 1 ELSE 2 END, now()-interval '7 hours', now()-interval '5 hours',
  now()-n*interval '30 s'-interval '3 hours', now()-n*interval '30 s'-interval '3 hours', CASE WHEN n<=20 THEN 'exit_code' END, CASE WHEN n<=20 THEN 'exit status 1' END, 'customer-'||n%7 FROM generate_series(1,400) n RETURNING id, failed_at)
INSERT INTO jobctl.job_attempts (run_id,attempt,worker,started_at,finished_at,outcome,error_type,error,exit_code,output)
 SELECT id,1,'web2',failed_at,failed_at,'failed','exit_code','exit status 1',1,E'convert: write\nno space left on device\n' FROM f;
-- lost leases of the silent host
WITH f AS (INSERT INTO jobctl.job_runs (job_type,status,attempts,started_at,failed_at,finished_at)
 SELECT 'sync_crm','succeeded',2,now()-interval '3 hours',now()-interval '175 min',now()-interval '170 min' FROM generate_series(1,5) RETURNING id, failed_at)
INSERT INTO jobctl.job_attempts (run_id,attempt,worker,started_at,finished_at,outcome,error_type,error)
 SELECT id,1,'web2',failed_at,failed_at,'lease_expired','lease_expired','the lease expired' FROM f;
-- dead invoices, 6 customers
WITH f AS (INSERT INTO jobctl.job_runs (job_type,status,attempts,started_at,failed_at,finished_at,error_type,last_error,share)
 SELECT 'mail_invoices','dead',1,now()-interval '4 hours',now()-n*interval '1 hour',now()-n*interval '1 hour','exit_code','exit status 78','customer-'||n FROM generate_series(1,6) n RETURNING id, failed_at)
INSERT INTO jobctl.job_attempts (run_id,attempt,worker,started_at,finished_at,outcome,error_type,error,exit_code,output)
 SELECT id,1,'web1',failed_at,failed_at,'failed','exit_code','exit status 78',78,'template invoice_de.html is missing' FROM f;
-- unserved queue
UPDATE jobctl.job_workers SET queues='{default}';
INSERT INTO jobctl.job_runs (job_type,queue,run_at) SELECT 'video_transcode','video',now()-interval '9 hours' FROM generate_series(1,40);
-- newsletter backlog
INSERT INTO jobctl.job_runs (job_type,created_at,run_at) SELECT 'newsletter',now()-interval '30 min', now()-interval '20 min' FROM generate_series(1,2200);
-- backup grew from 45 minutes to three hours
INSERT INTO jobctl.job_runs (job_type,status,attempts,created_at,started_at,finished_at) SELECT 'backup_nightly','succeeded',1, d, d, d+interval '1 min'*(45+15*(8-n)) FROM (SELECT n, date_trunc('day',now())-n*interval '1 day'+interval '2 hours' d FROM generate_series(1,8) n) x;
INSERT INTO jobctl.job_figures (job_type, day, succeeded, run_time_seconds, last_succeeded_at) SELECT 'backup_nightly', finished_at::date, 1, extract(epoch FROM finished_at-started_at), finished_at FROM jobctl.job_runs WHERE job_type='backup_nightly';
-- yesterday's dead and failed in figures
UPDATE jobctl.job_figures SET failed_attempts=400, dead=20 WHERE job_type='thumbnails' AND day=now()::date;
-- forgotten hold
INSERT INTO jobctl.job_holds (scope,name,held_at,recorded_by,reason) VALUES ('job','small_3',now()-interval '6 days','ada','while we migrate the disk');
INSERT INTO jobctl.job_runs (job_type,run_at) SELECT 'small_3',now()-interval '5 days' + n*interval '1 day' FROM generate_series(1,5) n;
-- running
INSERT INTO jobctl.job_runs (job_type,status,attempts,locked_by,locked_until,started_at) VALUES ('sync_crm','running',1,'web1',now()+interval '2 min',now()-interval '4 min'),('thumbnails','running',1,'web1',now()+interval '2 min',now()-interval '74 min'),('thumbnails','running',1,'web2',now()-interval '170 min',now()-interval '175 min');
ANALYZE;
