-- question: Which Xid errors did each node's GPUs report, and when?
-- param run:String = live | live, replay or drill; empty: all
-- param run_id:String = | only this run; empty: of several replays or drills the newest
-- param days:UInt32 = 0 | only so many days back from now; 0: all
-- example: rootrank query xid_by_node --param days=7
WITH
    nullIf(ifNull(aligned_time, lo_time), toDateTime64(0, 9, 'UTC')) AS at,
    newest AS
    (
        SELECT run, argMax(run_id, (heard_at, run_id)) AS run_id
        FROM (SELECT DISTINCT run, run_id FROM events WHERE name = 'gpu.xid' AND run != 'live') AS held
        LEFT JOIN runs_heard USING (run, run_id)
        GROUP BY run
    )
SELECT
    cluster, node, toUInt32OrNull(attributes['xid']) AS xid, sum(count) AS lines, count() AS events,
    groupUniqArray(8)(subject_pci_bus_id) AS gpus,
    min(at) AS first, max(at) AS last, run, run_id
FROM events
WHERE name = 'gpu.xid'
    AND ({run:String} = '' OR run = {run:String})
    AND if({run_id:String} != '', run_id = {run_id:String}, run = 'live' OR (run, run_id) IN newest)
    AND ({days:UInt32} = 0 OR at > now() - toIntervalDay({days:UInt32}))
GROUP BY run, run_id, cluster, node, xid
ORDER BY lines DESC, run, run_id, cluster, node, xid
LIMIT 1000
