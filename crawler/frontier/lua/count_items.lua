#!lua flags=allow-oom
-- count_items: change the numbers of items of queues and runs, whose pages were handled again; without a fence, because no
-- session works then. The changes of one id have numbers that only grow, and each counts once: `recounted` in meta has the id
-- and the last number.
-- KEYS  meta
-- ARGV  CountItemsArgs
-- returns how many of them did not count before
local known = call('HGET', ctx.meta_key, 'recounted')
local counted = known and list_of(known) or {}
local last, new = counted[1] == ARGV[CountItemsArgs.change] and counted[2] or 0, 0
for _, one in ipairs(cmsgpack.unpack(ARGV[CountItemsArgs.items])) do
  if one[CountItem.number] > last then
    last, new = one[CountItem.number], new + 1
    count(ctx.total, 'items', one[CountItem.n])
    count_in(record_of(one[CountItem.queue]), 'items', one[CountItem.n])
    if one[CountItem.run] ~= '' then count_seed(one[CountItem.run], RunCounts.items, one[CountItem.n]) end
  end
end
if new > 0 then
  close_call()
  call('HSET', ctx.meta_key, 'recounted', cmsgpack.pack({ARGV[CountItemsArgs.change], last}))
end
return new
