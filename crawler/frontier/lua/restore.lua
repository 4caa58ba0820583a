#!lua
-- restore: mark URLs whose commits are on disk as seen and done, and count what their index lines have, unless the engine
-- knows them. Takes their entries out of the log: a rebuild may have moved their records, and the next owner would write the
-- old places into an index. For the rebuild of a crawl; without a fence. Idempotent. Refused when out of memory.
-- KEYS  meta
-- ARGV  run, msgpack list of {fingerprint, queue, domain, status class, bytes, fetch (ms), seed or run, items,
--       lost, url (see _restored.lua)}; the crawl's hash key
-- returns digits: for each URL 1 it was unknown, 0 it was known
local run, items = ARGV[1], cmsgpack.unpack(ARGV[2])
keep_hash_key(ARGV[3])
local outcome, known, grown, logged = {}, {}, {}, {}
for i, item in ipairs(items) do
  outcome[i], logged[i] = '0', item[1] .. ':1'
  local of = run_named(item[7], run)
  if not is_closed(of) and see(seen_set(of), item[1]) then
    grown[of] = (grown[of] or 0) + 1
    outcome[i] = '1'
    ctx.has_runs = is_run(of)
    meet(record_of(item[2]), item[3], 1)
    count_seed(item[7], ADDED, 1)
    count_seed(item[7], DONE, 1)
    count_page(record_of(item[2]), item[7], item[4], item[5], item[8])
    known[#known + 1] = {
      queue = item[2], class = item[4], bytes = item[5], fetch_ms = item[6], items = item[8], lost = item[9], url = item[10],
    }
  end
end
if #known > 0 then
  count_done(known, 1)
  count(ctx.total, 'added', #known)
  for of, n in pairs(grown) do count(ctx.total, 'seen' .. of, n) end
  close_call()
end
run_many(logged, 'HDEL', ctx.prefix .. 'l')
return table.concat(outcome)
