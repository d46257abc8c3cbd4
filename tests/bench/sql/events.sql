-- The events of one day, as kernels print them; no UUID, the bus id says which GPU. Every 2,000 lines tell of 46 faults:
-- one of Xid 95 in 1,200 lines and one of Xid 119 in 600, of the others each in 1 to 20; and of a job that times out on
-- 20 nodes.
INSERT INTO events_rows
    (run, run_id, cluster, reporter, event_id, day, name, node, boot_id, machine_id, shipper_id, batch_seq, source,
    generation, offset, line_no, seq, body, clock_id, raw_ns, monotonic_raw_ns, monotonic_raw_width_ns, observed_time,
    aligned_time, lo_time, hi_time, u99_ns, clock_epoch, reference_broker, quality, severity, severity_number, label,
    role, scope, subject_node, subject_pci_bus_id, attributes, count, version)
WITH
    number % 2000 AS place,
    -- Of each kind: where its lines begin, how many tell of one fault, seconds between them at most.
    [0, 1200, 1800, 1880, 1920, 1950, 1958, 1962, 1970, 1990] AS begins,
    [1200, 600, 20, 10, 3, 2, 1, 1, 20, 1] AS lines, [20, 12, 1, 1, 10, 1800, 1, 1, 1, 1] AS apart_s,
    [95, 119, 31, 13, 74, 48, 79, 63, 0, 0] AS xids,
    multiIf(place < 1200, 1, place < 1800, 2, place < 1880, 3, place < 1920, 4, place < 1950, 5, place < 1958, 6,
        place < 1962, 7, place < 1970, 8, place < 1990, 9, 10) AS kind,
    intDiv(place - begins[kind], lines[kind]) AS fault, (place - begins[kind]) % lines[kind] AS nth,
    sipHash64(intDiv(number, 2000), kind, fault, {day:Date}) AS dice, sipHash64(number, {day:Date}) AS own_dice,
    kind <= 8 AS is_xid, xids[kind] AS xid,
    (dice + if(kind = 9, toUInt64(nth) * 8, 0)) % {gpus:UInt64} AS gpu, intDiv(gpu, 8) AS host_number,
    concat('n', leftPad(toString(host_number), 6, '0')) AS host,
    concat('0000:', lower(hex(toUInt8(16 + 16 * (gpu % 8)))), ':00') AS bus,
    toUnixTimestamp({day:Date}, 'UTC') * 1000000000 + intDiv(dice, 104729) % 60000000000000
        + (nth * 500000000 + own_dice % 500000000) * apart_s[kind] AS at_ns,
    fromUnixTimestamp64Nano(toInt64(at_ns), 'UTC') AS at,
    multiIf(is_xid, 'gpu.xid', kind = 9, 'nccl.watchdog.timeout', 'ib.link_down') AS event
SELECT
    'live', 'bench', concat('c', toString(intDiv(gpu * 4, {gpus:UInt64}))), host, lower(hex(own_dice)), {day:Date}, event,
    host, concat('b', toString(host_number)), concat('m', toString(host_number)), 's1', intDiv(number, 100), 'kmsg', '1',
    number, NULL, number, if(is_xid, concat('NVRM: Xid (PCI:', bus, '): ', toString(xid), ', pid=',
        toString(own_dice % 99999), ', name=python3, Ch ', toString(intDiv(own_dice, 31) % 99)), concat(event, ' on ', host,
        ' at step ', toString(intDiv(own_dice, 37) % 100000))),
    'k', toInt64(at_ns), toInt64(at_ns % 86400000000000), 0, at, at, at - toIntervalMillisecond(1),
    at + toIntervalMillisecond(1), 500000, 0, 1, 'good', 'error', 17,
    multiIf(is_xid, 'hardware/gpu_xid', kind = 9, 'network/nccl_timeout', 'network/ib_link'),
    if(kind = 9, 'symptom', 'cause'), if(is_xid, 'gpu', 'node'), host, if(is_xid, concat(bus, '.0'), NULL),
    if(is_xid, map('xid', toString(xid)), map()), 1, number
FROM numbers({first:UInt64}, {rows:UInt64})
SETTINGS optimize_on_insert = 0, min_insert_block_size_rows = 4000000, min_insert_block_size_bytes = 4000000000
