#!lua
-- restore: mark URLs whose commits are on disk as seen and done, and count what their index lines have, unless the engine
-- knows them. For the rebuild of a crawl that the engine lost; without a fence. Idempotent. Refused when out of memory.
-- KEYS  meta
-- ARGV  run, msgpack list of {fingerprint, queue, domain, status class, bytes, fetch (ms), seed, items};
--       the crawl's hash key
-- returns digits: for each URL 1 it was unknown, 0 it was known
local run, items = ARGV[1], cmsgpack.unpack(ARGV[2])
keep_hash_key(ARGV[3])
local seen = seen_set(run)
local outcome, known = {}, {}
for i, item in ipairs(items) do
  outcome[i] = '0'
  if see(seen, item[1]) then
    outcome[i] = '1'
    meet(record_of(item[2]), item[3], 1)
    count_seed(item[7], ADDED, 1)
    count_seed(item[7], DONE, 1)
    known[#known + 1] = {queue = item[2], class = item[4], bytes = item[5], fetch_ms = item[6], items = item[8]}
  end
end
if #known > 0 then
  count_done(known)
  count(ctx.total, 'added', #known)
  count(ctx.total, 'seen' .. run, #known)
  rank_queues(call('HGET', ctx.meta_key, 'top_min'))
  write_seeds()
  close_queues()
  write_added(run)
end
return table.concat(outcome)
