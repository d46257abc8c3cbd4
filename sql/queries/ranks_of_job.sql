-- question: What did each rank of a job say, on one timeline? First errors of each rank, all its endings, in true order as
-- question: far as clocks can tell: lo and hi bound each time.
-- param job:String | the job's id, or its key
-- param attempt:Int64 = -1 | only this attempt
-- param each:UInt32 = 20 | at most so many events of a rank
-- param run:String = live | live, replay or drill
-- param run_id:String = | only this run; empty: of several replays or drills the newest
-- param limit:UInt32 = 10000 | how many
-- example: rootrank query ranks_of_job --param job=48211 --param attempt=0
WITH
    newest AS
    (
        SELECT run, argMax(run_id, (heard_at, run_id)) AS run_id
        FROM
        (
            SELECT DISTINCT run, run_id
            FROM event_jobs
            WHERE (job_id = {job:String} OR job_key = {job:String}) AND run != 'live'
        ) AS held
        LEFT JOIN runs_heard USING (run, run_id)
        GROUP BY run
    ),
    mine AS
    (
        SELECT run, run_id, cluster, event_id, attempt
        FROM event_jobs
        WHERE (job_id = {job:String} OR job_key = {job:String}) AND run = {run:String}
            AND if({run_id:String} != '', run_id = {run_id:String}, run = 'live' OR (run, run_id) IN newest)
            AND ({attempt:Int64} < 0 OR attempt = {attempt:Int64})
    ),
    -- A line of a kernel names no rank; the placement does, where it holds at that time.
    seats AS
    (
        SELECT run, run_id, cluster, node, lower(ifNull(pci_bus_id, '')) AS bus, attempt, min(rank) AS seat
        FROM placement
        WHERE job_id = {job:String} AND run = {run:String} AND rank IS NOT NULL AND pci_bus_id IS NOT NULL
        GROUP BY run, run_id, cluster, node, bus, attempt
    )
SELECT
    mine.attempt AS attempt, ifNull(e.subject_rank, if(s.node = '', NULL, s.seat)) AS rank, e.node AS node,
    nullIf(ifNull(e.aligned_time, e.lo_time), toDateTime64(0, 9, 'UTC')) AS at, e.lo_time AS lo, e.hi_time AS hi,
    e.name AS name, e.role AS role, e.severity AS severity, e.count AS count, e.source AS source, e.line_no AS line_no,
    e.body AS body, e.run AS run, e.run_id AS run_id
FROM events AS e
INNER JOIN mine USING (run, run_id, cluster, event_id)
LEFT JOIN seats AS s ON e.run = s.run AND e.run_id = s.run_id AND e.cluster = s.cluster AND e.node = s.node
    AND lower(ifNull(e.subject_pci_bus_id, 'none')) = s.bus AND mine.attempt = s.attempt
WHERE e.event_id IN (SELECT event_id FROM mine) AND e.role != 'noise'
ORDER BY at ASC NULLS LAST, rank ASC NULLS LAST, source, e.offset
LIMIT {each:UInt32} BY attempt, rank, node
LIMIT {limit:UInt32}
SETTINGS join_use_nulls = 0
