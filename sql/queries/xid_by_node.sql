-- question: Which Xid errors did each node's GPUs report, and when?
-- param run:String = live | live, replay or drill; empty: all
-- param days:UInt32 = 0 | only so many days back from now; 0: all
-- example: rootrank query xid_by_node --param days=7
WITH nullIf(ifNull(aligned_time, lo_time), toDateTime64(0, 9, 'UTC')) AS at
SELECT
    cluster, node, toUInt32OrNull(attributes['xid']) AS xid, sum(count) AS lines, count() AS events,
    groupUniqArray(8)(subject_pci_bus_id) AS gpus,
    min(at) AS first, max(at) AS last
FROM events
WHERE name = 'gpu.xid'
    AND ({run:String} = '' OR run = {run:String})
    AND ({days:UInt32} = 0 OR at > now() - toIntervalDay({days:UInt32}))
GROUP BY cluster, node, xid
ORDER BY lines DESC, cluster, node, xid
LIMIT 1000
