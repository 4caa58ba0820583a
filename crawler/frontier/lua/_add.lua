-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- A URL is nine values of a list: fingerprint, queue, domain, score as text, member, origin, depth, reason, seed. With an
-- origin ('' for most), the member lacks its letter; with a reason ('' for most; see defer_one) the URL is deferred at once,
-- or with 'at:MS' scheduled for that wall time (see _scheduled.lua); seed (0 for none) is the number of the seed it descends
-- from, or the id of its run. All URLs of a call belong to one run.
-- Add budgets, 0 for no limit: {URLs of a queue, hosts of a domain (see _admission.lua), requisites of a queue}. URLs beyond
-- them are deferred. A URL with the reason 'requisite' is one, which the first two are not for.
-- With a limit on depth, z<run>:<bucket> stores fingerprint -> depth of all URLs that are pending or deferred: a shorter
-- path may be found later. A URL that is no longer too deep goes into its queue.
-- Other new URLs are collected over all commits of an ack and enter their queues at the end: one call with many members
-- costs a fraction of many calls.

local function push(list, a, b)
  local n = #list
  list[n + 1], list[n + 2] = a, b
end

local meet
do
  -- Give a host the boost of its domain. The boost is stored under the domain's name, which need not be a queue; when the
  -- operator set it, the host was unknown or had no URLs.
  local function follow_boost(r, domain)
    local boost = domain ~= r.queue and meta().boosts and call('ZSCORE', ctx.prefix .. 'boosts', domain)
    if boost and not r[MORE].boost then change_boost(r, tonumber(boost)) end
  end

  -- Count n URLs of a queue that are new to the crawl; fewer than 0: they are forgotten.
  function meet(r, domain, n)
    if r[URLS] == 0 then
      count(ctx.total, 'queues', 1)
      list_name(r.queue)
      if domain ~= r.queue then set_more(r, 'domain', domain) end
      if call('ZCARD', ctx.prefix .. 'top') < TOP_MAX then call('ZADD', ctx.prefix .. 'top', 'NX', 0, r.queue) end
    end
    add_to(r, URLS, n)
    if ctx.has_runs then
      count_in(r, 'run_urls', n)
      count(ctx.total, 'run_urls', n)
    end
    if r[URLS] == 0 then count(ctx.total, 'queues', -1) end
    follow_boost(r, domain)
  end
end

-- most: of them that the queue may ever get, for which it has met so many; 0: no limit. Those beyond are deferred.
local function take_in(r, entries, default_delay_ms, most, met, beyond_reason)
  local n = #entries / 2
  local room = most > 0 and not ctx.has_runs and math.max(0, most - met) or n -- those of a run have no budget
  meet(r, ctx.domain_of[r.queue], n)
  if room < n then
    local beyond = {}
    for i = 2 * room + 1, 2 * n do beyond[#beyond + 1], entries[i] = entries[i], nil end
    defer(r.queue, beyond_reason, beyond)
  end
  if room > 0 then put_pending(r, ctx.user, entries, default_delay_ms) end
end

function Requisites.take_in(r, entries, default_delay_ms, budget)
  local met = r[MORE].requisites or 0
  Requisites.meet(r, #entries / 2)
  take_in(r, entries, default_delay_ms, budget[AddBudgetArgs.requisites], met, Requisites.BEYOND)
end

local add_items
do
  -- The wall time (ms, text) that a URL is scheduled for; nil for most.
  local function scheduled_for(items, at)
    local reason = items[at + UrlItem.reason]
    return reason ~= '' and string.match(reason, '^at:(%d+)$') or nil
  end

  -- Why a URL is deferred at once; '' for most. hosts_max: 0 when hosts have no budget.
  local function defer_reason(items, at, hosts_max)
    local reason = scheduled_for(items, at) and '' or items[at + UrlItem.reason]
    if hosts_max == 0 or reason ~= '' then return reason end
    local host = host_in(items[at + UrlItem.queue], items[at + UrlItem.member], items[at + UrlItem.origin])
    local is_seed = is_given(tonumber(items[at + UrlItem.score]))
    return takes_host(items[at + UrlItem.domain], host, hosts_max, is_seed) and '' or HOSTS
  end

  -- Is a queue's budget of URLs used up, with those that arrived in this call?
  local function is_full(r, budget)
    local arrived = ctx.arrived[r.queue]
    local urls = Users.own_urls(r) + (arrived and #arrived / 2 or 0)
    return budget[AddBudgetArgs.urls] > 0 and urls >= budget[AddBudgetArgs.urls]
  end

  -- A URL of a run is not kept for later, because the run ends: what would be deferred is refused. Why; '' for most.
  local function refusal_of(r, reason)
    if reason ~= '' then return reason end
    return Stops.deferring(r, Stops.RUNS) or ''
  end

  -- Take in a URL that is new to the run. Returns whether it waits: false for one that was refused.
  local function arrive(items, at, run, budget)
    local queue, domain, score = items[at + UrlItem.queue], items[at + UrlItem.domain], items[at + UrlItem.score]
    local member, origin, at_ms = items[at + UrlItem.member], items[at + UrlItem.origin], scheduled_for(items, at)
    local reason = defer_reason(items, at, is_run(run) and 0 or budget[AddBudgetArgs.hosts]) -- budgets are not for runs
    count_seed(items[at + UrlItem.seed], ADDED, 1)
    if is_run(run) then
      local r = record_of(queue)
      reason = refusal_of(r, reason)
      if reason ~= '' then
        meet(r, domain, 1)
        enter(State.REFUSED, r, {seed = run, reason = reason, example = queue})
        r.has_refused = true
        return false
      end
    end
    if origin ~= '' then member = listed_member(queue, origin, member) end
    if reason == Requisites.MARK then
      ctx.domain_of[queue], ctx.requisites[queue] = domain, ctx.requisites[queue] or {}
      push(ctx.requisites[queue], score, member)
      return true
    end
    if at_ms and reason == '' and is_full(record_of(queue), budget) then reason = 'urls' end
    if at_ms and reason == '' then
      meet(record_of(queue), domain, 1)
      schedule(record_of(queue), score, member, at_ms)
    elseif reason ~= '' then
      meet(record_of(queue), domain, 1)
      defer_one(queue, reason, score, member, items[at + UrlItem.fingerprint], items[at + UrlItem.depth])
    elseif ctx.arrived[queue] then
      push(ctx.arrived[queue], score, member)
    else
      ctx.arrivals[#ctx.arrivals + 1], ctx.domain_of[queue], ctx.arrived[queue] = queue, domain, {score, member}
    end
    return true
  end

  -- A shorter path to a URL known at this depth was found. The URL keeps its member, which has the seed it descends from.
  local function lift(items, at, depth, default_delay_ms, hosts_max)
    local fp, queue, score = items[at + UrlItem.fingerprint], items[at + UrlItem.queue], items[at + UrlItem.score]
    local member = take_deep(queue, depth, fp)
    if not member then return end
    local reason = defer_reason(items, at, hosts_max)
    if reason ~= '' then return defer_one(queue, reason, score, member, fp, items[at + UrlItem.depth]) end
    local at_ms = scheduled_for(items, at)
    if at_ms then return schedule(record_of(queue), score, member, at_ms) end
    put_pending(record_of(queue), ctx.user, {score, member}, default_delay_ms)
  end

  -- Returns a string with one digit for each URL, from value number `first` on (1 new, 0 seen, 2 depth lowered, 3 its run is
  -- closed).
  function add_items(items, first, run, default_delay_ms, is_limited, budget)
    local size = UrlItem.size
    if is_closed(run) then return string.rep('3', (#items - first + 1) / size) end
    ctx.has_runs = is_run(run)
    local seen, hosts_max = seen_set(run), budget[AddBudgetArgs.hosts]
    local outcome, n, added = {}, 0, 0
    for at = first - 1, #items - 1, size do
      local fp, depth = items[at + UrlItem.fingerprint], items[at + UrlItem.depth]
      local digit = '0'
      if see(seen, fp) then
        digit, added = '1', added + 1
        if arrive(items, at, run, budget) and is_limited then call('HSET', depths_of(seen, fp), fp, depth) end
      else
        local depths = is_limited and depths_of(seen, fp)
        local before = depths and tonumber(call('HGET', depths, fp) or nil) or 0
        if depth < before then
          digit = '2'
          call('HSET', depths, fp, depth)
          lift(items, at, before, default_delay_ms, hosts_max)
        end
      end
      n = n + 1
      outcome[n] = digit
    end
    if added > 0 then
      count(ctx.total, 'added', added)
      count(ctx.total, 'seen' .. run, added)
    end
    return table.concat(outcome)
  end
end

-- Put all collected URLs into their queues.
local function enter_all(default_delay_ms, budget)
  read_queues(ctx.arrivals)
  for queue, entries in pairs(ctx.arrived) do
    local r = record_of(queue)
    take_in(r, entries, default_delay_ms, budget[AddBudgetArgs.urls], Users.own_urls(r), 'urls')
  end
  for queue, entries in pairs(ctx.requisites) do
    Requisites.take_in(record_of(queue), entries, default_delay_ms, budget)
  end
  for _, r in pairs(ctx.records) do
    if r.has_refused then settle_idle(r) end
  end
end
