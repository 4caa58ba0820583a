#!lua flags=allow-oom
-- unspill: put the URLs of a block that is in a file back into memory. Without a fence: the content of a stub never changes.
-- Idempotent. Works when out of memory: the queue may have no other URLs.
-- KEYS  meta
-- ARGV  UnspillArgs
-- returns {'COMMITTED' or 'GONE' (brought back before), 1 when the next block has to be brought back, too, 1 when the queue
--       woke}
local queue, stub, urls = ARGV[UnspillArgs.row], ARGV[UnspillArgs.stub], cmsgpack.unpack(ARGV[UnspillArgs.urls])
local r, index, head = place_named(queue), index_of(queue), head_of(queue)
local highest = call('ZSCORE', index, stub)
if not highest then return {'GONE', look_ahead(queue, 0) and 1 or 0, 0} end

local entries, n = {}, #urls / 2
for i = 1, #urls, 2 do entries[i], entries[i + 1] = urls[i + 1], urls[i] end
local is_next = call('ZREVRANGE', index, 0, 0)[1] == stub
call('ZREM', index, stub)
if is_next and call('ZCARD', head) + n <= BLOCK then
  run_many(entries, 'ZADD', head)
else
  local id = string.sub(stub, 1, ID_LENGTH)
  call('ZADD', index, highest, id)
  run_many(entries, 'ZADD', block_of(queue, id))
  lengthen(queue)
  promote(r)
end
count_spilled(queue, -n)
local file = string.match(stub, ' (%S+)')
if call('HINCRBY', ctx.prefix .. 'files', file, -1) == 0 then call('HDEL', ctx.prefix .. 'files', file) end
local is_short = look_ahead(queue, 0)
if not is_row(queue) and not Aside.split(queue) then wake(r.parent or r, tonumber(ARGV[UnspillArgs.default_delay_ms])) end
return {'COMMITTED', is_short and 1 or 0, close_call()}
