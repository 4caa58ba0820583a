#!lua flags=allow-oom
-- ack: commit fetched URLs of a partition. Needs the fence, and for each URL its delivery's token. Works when out of memory.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), run, default delay (ms), 1 when the crawl has a limit of depth, budget of URLs of a queue
--       (0: none), then for each URL msgpack
--       {fingerprint, token, visit, queue, next fetch (ms), delay (ms), status class, bytes, fetch (ms), items of
--       this partition, entry, list of {reason, how many} out-links refused, seed}
-- returns {'FENCED'} | {'OK', woken queues, then for each URL 'GONE' | 'YOURS sequence' | 'COMMITTED sequence digits'}
--@include _fence _record _shelf _queue _block _park _seen _top _seed _add _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local run, default_delay, is_limited, urls_max = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])

local function book(a)
  local r, class = record_of(a[4]), 's' .. a[7]
  count(total, class, 1)
  count(total, 'bytes', a[8])
  count_in(r, class, 1)
  r[BYTES], r[FETCH_MS], r.has_pages = r[BYTES] + a[8], r[FETCH_MS] + a[9], true
  for _, refused in ipairs(a[12]) do
    local name = 'refused:' .. refused[1]
    count(total, name, refused[2])
    count_in(r, name, refused[2])
  end
  count_seed(a[13], DONE, 1)
  settle(r, 1, a[5], a[6])
end

local commits, tokens = {}, {}
for i = 8, #ARGV do
  local a = cmsgpack.unpack(ARGV[i])
  commits[#commits + 1], tokens[#tokens + 1] = a, a[2]
end
local claimed = call('ZMSCORE', P .. 'x', unpack(tokens))
local sequence = tonumber(call('HGET', M, 'sequence') or nil) or 0
local answers, log, ended, is_ended, fingerprints = {'OK', 0}, {}, {}, {}, {}
for i, a in ipairs(commits) do
  local fp, token, key = a[1], a[2], a[1] .. ':' .. a[3]
  if claimed[i] and not is_ended[token] and is_of_epoch(token, ARGV[2]) then
    local digits = #a[10] > 0 and add_items(a[10], run, default_delay, is_limited, urls_max) or ''
    sequence = sequence + 1
    local text = string.format('%.0f', sequence)
    push(log, key, token .. ' ' .. text .. ' ' .. a[11])
    ended[#ended + 1], fingerprints[#fingerprints + 1], is_ended[token] = token, fp, true
    book(a)
    answers[i + 2] = 'COMMITTED ' .. text .. ' ' .. digits
  else
    local entry = call('HGET', P .. 'l', key)
    local is_mine = entry and string.sub(entry, 1, #token + 1) == token .. ' '
    answers[i + 2] = is_mine and 'YOURS ' .. string.match(entry, '^%S+ (%d+) ') or 'GONE'
  end
end
if #ended > 0 then
  call('HSET', P .. 'l', unpack(log))
  end_claims(ended)
  forget(run, fingerprints, is_limited)
  count(total, 'done', #ended)
  count(total, 'sequence', #ended)
  rank_queues()
  answers[2] = close_queues()
  write_totals()
  write_seeds()
end
return answers
