SELECT DISTINCT cluster, job_key FROM rebuild_cut_jobs
