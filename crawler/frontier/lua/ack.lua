#!lua flags=allow-oom
-- ack: commit fetched URLs of a partition. Needs the fence, and for each URL its delivery's token. Works when out of memory.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), run, default delay (ms), 1 when the crawl has a limit of depth, then for each URL msgpack
--       {fingerprint, token, visit, queue, domain, next fetch (ms), delay (ms), status class, bytes, fetch (ms), items of
--       this partition, entry, list of {reason, how many} out-links refused}
-- returns {'FENCED'} | {'OK', then for each URL 'GONE' | 'YOURS sequence' | 'COMMITTED sequence woken digits of its items'}
--@include _fence _record _queue _block _seen _add _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local run, default_delay, is_limited = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1'

local function flat(of)
  local list = {}
  for name, n in pairs(of) do push(list, name, n) end
  return list
end

-- What the commits count is gathered, and written once for the whole call.
local total, domains, queues = {}, {}, {}
local function count(of, name, n) of[name] = (of[name] or 0) + n end

local function book(a)
  local mine, queue = domains[a[5]] or {}, queues[a[4]] or {n = 0, next_ms = 0}
  domains[a[5]], queues[a[4]] = mine, queue
  count(total, 'done', 1)
  count(mine, 'claimed', -1)
  count(mine, 'fetch_ms', a[10])
  for _, of in ipairs({total, mine}) do
    count(of, 's' .. a[8], 1)
    count(of, 'bytes', a[9])
    for _, refused in ipairs(a[13]) do count(of, 'refused:' .. refused[1], refused[2]) end
  end
  queue.n, queue.next_ms, queue.delay_ms = queue.n + 1, math.max(queue.next_ms, a[6]), a[7]
end

local sequence = tonumber(call('HGET', M, 'sequence') or nil) or 0
local answers, log, tokens, ended, fingerprints = {'OK'}, {}, {}, {}, {}
for i = 7, #ARGV do
  local a = cmsgpack.unpack(ARGV[i])
  local fp, token, key = a[1], a[2], a[1] .. ':' .. a[3]
  if not ended[token] and is_claimed(token, ARGV[2]) then
    local digits, woken = '', 0
    if #a[11] > 0 then digits, woken = add_items(a[11], run, default_delay, is_limited) end
    sequence = sequence + 1
    local number = string.format('%.0f', sequence)
    push(log, key, token .. ' ' .. number .. ' ' .. a[12])
    tokens[#tokens + 1], fingerprints[#fingerprints + 1], ended[token] = token, fp, true
    book(a)
    answers[i - 5] = 'COMMITTED ' .. number .. ' ' .. woken .. ' ' .. digits
  else
    local entry = call('HGET', P .. 'l', key)
    local is_mine = entry and string.sub(entry, 1, #token + 1) == token .. ' '
    answers[i - 5] = is_mine and 'YOURS ' .. string.match(entry, '^%S+ (%d+) ') or 'GONE'
  end
end
if #tokens > 0 then
  call('HSET', P .. 'l', unpack(log))
  end_claims(tokens)
  forget(run, fingerprints, is_limited)
  count(total, 'sequence', #tokens)
  bump(M, flat(total))
  for domain, mine in pairs(domains) do
    call('ZINCRBY', P .. 'domains', -mine.claimed, domain)
    bump(P .. 'd:' .. domain, flat(mine))
  end
  for queue, of in pairs(queues) do settle(queue, of.n, of.next_ms, of.delay_ms) end
end
return answers
