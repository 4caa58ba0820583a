#!lua flags=allow-oom
-- spill: remove a block of a queue, or of a row of deferred URLs, from memory after it was written to a file. Needs the fence.
-- Idempotent. Works when out of memory.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack SpillArgs
-- returns {'FENCED'} | {'COMMITTED'} | {'GONE'}: some URLs have left the block since it was read, nothing was done
local now = tonumber(ARGV[FenceArgs.now_ms])
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local queue, id, written = a[SpillArgs.row], a[SpillArgs.block], a[SpillArgs.urls]
local index, key = index_of(queue), block_of(queue, id)
local file = a[SpillArgs.file]
local stub = table.concat({id, file, a[SpillArgs.offset], a[SpillArgs.length], #written / 2}, ' ')
if call('ZSCORE', index, stub) then return {'COMMITTED'} end
if not call('ZSCORE', index, id) then return {'GONE'} end

local there, known, members, highest = call('ZRANGE', key, 0, -1, 'WITHSCORES'), {}, {}, -math.huge
for i = 1, #there, 2 do known[there[i]] = tonumber(there[i + 1]) end
for i = 1, #written, 2 do
  local score = tonumber(written[i + 1])
  if known[written[i]] ~= score then return {'GONE'} end
  members[#members + 1], highest = written[i], math.max(highest, score)
end
call('ZREM', index, id)
call('ZADD', index, text_of(highest), stub)
if #there == #written then
  call('DEL', key)
else
  run_many(members, 'ZREM', key)
  -- URLs that were added since the block was read
  call('RENAME', key, new_block(place_named(queue), call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]))
end
write_queues()
shorten(queue)
count_spilled(queue, #members)
call('HINCRBY', ctx.prefix .. 'files', file, 1)
look_ahead(queue, now)
return {'COMMITTED'}
