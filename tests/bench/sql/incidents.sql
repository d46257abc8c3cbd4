-- 200 incidents a day, on single GPUs.
INSERT INTO incident_revisions_rows
    (run, run_id, cluster, incident_id, revision, verdict, state, severity, class, domain, job_ids, world_size, started_at,
    detected_at, culprit_nodes, culprit_gpus, explanation, version)
WITH
    sipHash64(number) % {gpus:UInt64} AS gpu, intDiv(gpu, 8) AS place,
    toDateTime64({first_day:Date}, 9, 'UTC') + toIntervalSecond(number * 432) AS at,
    ['hardware/gpu_xid_79', 'hardware/gpu_ecc_uncorrectable', 'network/ib_link_flap', 'hardware/gpu_xid_119'] AS classes
SELECT
    'live', 'bench', concat('c', toString(intDiv(gpu * 4, {gpus:UInt64}))), concat('i', toString(number)), 1, 'settled',
    'open', 'critical', classes[number % 4 + 1] AS class, splitByChar('/', class)[1],
    [concat('job', toString(number % 999))], 512, at, at + toIntervalSecond(5),
    [concat('n', leftPad(toString(place), 6, '0'))],
    [concat('0000:', lower(hex(toUInt8(16 + 16 * (gpu % 8)))), ':00.0')], 'a GPU failed', 1
FROM numbers({days:UInt64} * 200)
