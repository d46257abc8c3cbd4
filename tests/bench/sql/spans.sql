-- An inventory: nodes of 8 GPUs in racks of 8 nodes, four clusters, three SKUs, a new driver on every third node half way;
-- one GPU in twenty is drained for a day, one in forty repaired; nodes are busy and observed throughout.
INSERT INTO fleet_spans_rows
    (run, run_id, cluster, source, generation, row, unit_kind, unit, kind, started_at, ended_at, node, facts, action,
    ticket, known_at, version)
WITH
    number AS gpu, intDiv(gpu, 8) AS place, concat('n', leftPad(toString(place), 6, '0')) AS host,
    concat('c', toString(intDiv(gpu * 4, {gpus:UInt64}))) AS home, toDateTime64({first_day:Date}, 9, 'UTC') AS begin,
    concat('GPU-', lower(hex(sipHash64(gpu, 'uuid')))) AS uuid,
    arrayConcat(
        [('gpu', uuid, 'installed', begin, CAST(NULL, 'Nullable(DateTime64(9, \'UTC\'))'),
            map('sku', ['h100', 'h200', 'b200'][place % 3 + 1], 'firmware', concat('96.', toString(gpu % 5)),
                'pci_bus_id', concat('0000:', lower(hex(toUInt8(16 + 16 * (gpu % 8)))), ':00.0')), '', '')],
        if(gpu % 8 = 0,
            [('node', host, 'installed', begin, NULL,
                map('driver', '570.1', 'rack', concat('r', toString(intDiv(place, 8))), 'leaf_switch',
                    concat('leaf', toString(intDiv(place, 16)))), '', '')], []),
        if(gpu % 24 = 0, [('node', host, 'facts', begin + toIntervalDay(intDiv({days:UInt32}, 2)), NULL,
            map('driver', '580.2'), '', '')], []),
        if(gpu % 20 = 3, [('gpu', uuid, 'drain', begin + toIntervalHour(gpu % ({days:UInt32} * 24)),
            begin + toIntervalHour(gpu % ({days:UInt32} * 24) + 24), map(), '', concat('T', toString(gpu)))], []),
        if(gpu % 40 = 3, [('gpu', uuid, 'repair', begin + toIntervalHour(gpu % ({days:UInt32} * 24) + 2),
            begin + toIntervalHour(gpu % ({days:UInt32} * 24) + 24), map(), 'reset', concat('T', toString(gpu)))], []),
        if(gpu % 8 = 0, [('node', host, 'observed', begin, begin + toIntervalDay({days:UInt32}), map(), '', ''),
            ('node', host, 'busy', begin, begin + toIntervalDay({days:UInt32}), map(), '', '')], []),
        if(gpu * 4 % {gpus:UInt64} < 4, [('', '', 'imported', begin, NULL, map(), '', '')], [])
    ) AS told
SELECT
    'live', 'bench', home, 'bench.csv', 1, gpu * 8 + index, t.1, t.2, t.3, t.4, t.5, host, t.6, t.7, t.8,
    toDateTime64({first_day:Date}, 3, 'UTC'), 1
FROM numbers({gpus:UInt64})
ARRAY JOIN told AS t, arrayEnumerate(told) AS index
