-- Incidents that stand and began in [from_ns, to_ns), as people have corrected them, on the first culprit named.
SELECT
    i.cluster AS cluster, i.incident_id AS incident_id,
    toUnixTimestamp64Nano(assumeNotNull(ifNull(i.started_at, i.detected_at))) AS at_ns,
    if(c.class != '', c.class, i.class) AS class,
    ifNull(b.node, '') AS blamed_node, ifNull(b.machine_id, '') AS blamed_machine_id,
    ifNull(b.gpu_uuid, ifNull(b.serial, '')) AS blamed_gpu, lower(ifNull(b.pci_bus_id, '')) AS blamed_bus,
    c.unit_kind AS corrected_kind, c.unit AS corrected_unit, c.node AS corrected_node, i.job_ids AS job_ids,
    i.world_size AS job_gpus, i.lost_gpu_hours AS lost_gpu_hours, c.corrected_by AS corrected_by
FROM incidents AS i
LEFT JOIN corrections AS c USING (run, run_id, cluster, incident_id)
LEFT JOIN (SELECT * FROM culprits WHERE place = 1) AS b USING (run, run_id, cluster, incident_id)
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND i.state IN {standing:Array(String)}
    AND (c.incident_id = '' OR c.is_failure)
    AND at_ns >= {from_ns:Int64} AND at_ns < {to_ns:Int64}
ORDER BY at_ns, incident_id
SETTINGS join_use_nulls = 0
