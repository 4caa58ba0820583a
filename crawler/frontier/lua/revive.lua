#!lua
-- revive: URLs that were given up are added anew, as if they had never been seen; their letters go. Needs no fence: people
-- do it, at any time. Idempotent: without a letter nothing happens. Refused when out of memory.
-- KEYS  meta
-- ARGV  as of add
-- returns {how many, how many sleeping queues woke}
--@include _fence _record _shelf _queue _block _park _seen _top _seed _add _hint
local run, items = ARGV[1], {}
local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
local low = level_of(buckets)
for _, item in ipairs(cmsgpack.unpack(ARGV[3])) do
  if call('HDEL', P .. 'dead', item[1]) == 1 then
    call('SREM', P .. 's' .. run .. ':' .. bucket_of(item[1], buckets, low), item[1])
    items[#items + 1] = item
  end
end
if #items == 0 then return {0, 0} end
bump(M, {['seen' .. run] = -#items})
add_items(items, run, tonumber(ARGV[2]), ARGV[6] == '1', 0) -- whoever asks for it wants it, budget or not
for _, item in ipairs(items) do
  local r = record_of(item[2])
  count_in(r, 'dead', -1)
  add_to(r, URLS, -1) -- it was counted when it was first met
  count_seed(item[9], ADDED, -1)
  count_seed(item[9], DEAD, -1)
end
-- done stays as it is, for it only grows: revived tells how many were done and are pending, or done, once more.
count(total, 'dead', -#items)
count(total, 'revived', #items)
local woken = close_queues()
write_totals()
write_seeds()
hint(woken, ARGV[4], ARGV[5])
return {#items, woken}
