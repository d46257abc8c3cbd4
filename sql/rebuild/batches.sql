SELECT is_end, record FROM rebuild_batches WHERE job_key = {job_key:String} ORDER BY is_end, place
