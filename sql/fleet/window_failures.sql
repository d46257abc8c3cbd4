-- Failures of the days [first, last], as of a moment.
SELECT
    cluster, unit_kind, unit, node, sku, driver, rack, position, firmware, batch, incident_id,
    toUnixTimestamp64Nano(at) AS at_ns, class, category, component, job_ids, job_gpus, lost_gpu_hours, corrected_by
FROM failure_days_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day >= {first:Date} AND day <= {last:Date}
ORDER BY at_ns, cluster, incident_id
