SET session_replication_role = replica;
INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since, queues) VALUES
 ('web1','0.1.0',now(),now()-interval '7 days','{}'), ('web2','0.1.0',now()-interval '20 s',now()-interval '7 days','{}');
UPDATE jobctl.job_definitions SET created_at=now()-interval '9 days', next_run_at = CASE WHEN schedule IS NOT NULL THEN now()+interval '1 hour'*(1+length(name)%9) END;
INSERT INTO jobctl.job_runs (job_type,status,attempts,created_at,run_at,started_at,finished_at)
 SELECT j, 'succeeded', 1, at-interval '2 s', at - interval '2 s', at-interval '1 s', at FROM (SELECT now()-n*interval '13 s' AS at, (ARRAY['mail_invoices','sync_crm','thumbnails','newsletter'])[1+n%4] AS j FROM generate_series(1,46000) n) x;
INSERT INTO jobctl.job_figures (job_type, day, succeeded, run_time_seconds, wait_seconds, last_ended_at, last_status, last_succeeded_at)
 SELECT job_type, finished_at::date, count(*), count(*)*0.9, count(*), max(finished_at),'succeeded', max(finished_at) FROM jobctl.job_runs WHERE status='succeeded' GROUP BY 1,2;
