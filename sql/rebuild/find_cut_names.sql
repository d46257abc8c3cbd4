-- Other names that reading gives such jobs, because the lines that name them lie before the days.
INSERT INTO rebuild_cut_jobs
SELECT DISTINCT cluster, job_key
FROM rebuild_event_jobs_rows
WHERE (cluster, job_key) NOT IN (SELECT cluster, job_key FROM rebuild_cut_jobs)
    AND (cluster, job_key) NOT IN (SELECT cluster, job_key FROM event_jobs WHERE run = 'live')
    AND (run_id, cluster, event_id) IN
    (
        SELECT run_id, cluster, event_id FROM event_jobs
        WHERE run = 'live' AND (cluster, job_key) IN (SELECT cluster, job_key FROM rebuild_cut_jobs)
    )
