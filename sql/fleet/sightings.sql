-- The first line of each burst of one kind of error on one unit over the days [first, last], for what follows what.
-- A burst ends where nothing of it came for {apart_s} s.
WITH
    lines AS
    (
        SELECT
            run_id, cluster, event_id, name, ifNull(attributes['xid'], '') AS xid, node, source, generation, offset,
            clock_id, raw_ns, toUnixTimestamp64Nano(aligned_time) AS at_ns, toUnixTimestamp64Nano(lo_time) AS lo_ns,
            toUnixTimestamp64Nano(hi_time) AS hi_ns, u99_ns, clock_epoch, reference_broker, quality,
            multiIf(
                ifNull(subject_gpu_uuid, '') != '', assumeNotNull(subject_gpu_uuid),
                ifNull(subject_serial, '') != '', assumeNotNull(subject_serial),
                ifNull(subject_pci_bus_id, '') != '', concat(node, '/', lower(assumeNotNull(subject_pci_bus_id))),
                node) AS unit
        FROM events
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND ({cluster:String} = '' OR cluster = {cluster:String})
            AND day >= {first:Date} - 1 AND day <= {last:Date} + 1
            AND (role IN ('cause', 'intermediate') OR name = 'gpu.xid')
            AND aligned_time >= toDateTime64({first:Date}, 9, 'UTC')
            AND aligned_time < toDateTime64({last:Date} + 1, 9, 'UTC')
    ),
    following AS
    (
        SELECT *, lagInFrame(toNullable(at_ns)) OVER
        (
            PARTITION BY cluster, unit, name, xid ORDER BY at_ns ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
        ) AS before_ns
        FROM lines
    )
SELECT
    f.event_id, f.name, f.xid, f.node, f.source, f.generation, f.offset, f.clock_id, f.raw_ns, f.at_ns, f.lo_ns, f.hi_ns,
    f.u99_ns, f.clock_epoch, f.reference_broker, f.quality, f.unit, j.jobs
FROM following AS f
LEFT JOIN
(
    SELECT run_id, cluster, event_id, groupUniqArray(job_key) AS jobs
    FROM event_jobs
    WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
        AND ({cluster:String} = '' OR cluster = {cluster:String})
        AND day >= {first:Date} - 1 AND day <= {last:Date} + 1
    GROUP BY run_id, cluster, event_id
) AS j USING (run_id, cluster, event_id)
WHERE isNull(f.before_ns) OR f.at_ns - f.before_ns > {apart_s:Int64} * 1000000000
ORDER BY f.at_ns, f.event_id
LIMIT {most:UInt64}
SETTINGS join_use_nulls = 0
