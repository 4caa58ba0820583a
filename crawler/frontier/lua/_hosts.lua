-- Budgets of hosts. One of each domain: so many are taken in, URLs of further ones are parked. Shelf n: domain -> how many of
-- its hosts were taken in, and 'domain label' for each of those; of 'www.example.com' the label is 'www', '@' for the domain
-- itself.
-- And one of the whole crawl. Whether it has room for another host, no script knows: who adds a URL says so. Hosts that were
-- taken in are the members of a seen-set of their own, shosts:<bucket>. The URLs of another one are parked in a row of that
-- host alone, QUEUE|crawl:hosts:HOST: when the host is taken in, all of the row is released.
local HOSTS_RUN = 'hosts' -- in place of a run's number
local taken_labels -- 'domain label' -> true, of those that were found or taken in
--@each taken_labels = {}

-- The host of an item of add: its origin says it, or the letter of its member.
local function host_in(queue, member, origin)
  if origin ~= '' then return (string.gsub(string.match(origin, '//(.*)$'), ':%d+$', '')) end
  local letter = string.sub(member, 1, 1)
  return (letter == '#' or letter == '$') and 'www.' .. queue or queue
end

local function label_of(domain, host)
  if host == domain then return '@' end
  local behind = '.' .. domain
  return string.sub(host, -#behind) == behind and string.sub(host, 1, -#behind - 1) or host
end

-- Does its domain take this host in, by now or from now on? Those of URLs that people gave always are.
local function takes_host(domain, host, hosts_max, is_given)
  local name = domain .. ' ' .. label_of(domain, host)
  if not taken_labels[name] and not shelf_get('n', name) then
    local n = tonumber(shelf_get('n', domain) or nil) or 0
    if n >= hosts_max and not is_given then return false end
    shelf_put('n', name, '')
    shelf_put('n', domain, n + 1)
  end
  taken_labels[name] = true
  return true
end

-- Of a host that a budget of the whole crawl took in, its set has the number.
local function member_of_host(host) return string.format('%d', number_of(host)) end

local function is_taken_in(host) return is_seen(seen_set(HOSTS_RUN), member_of_host(host)) end

local function take_in(host)
  if see(seen_set(HOSTS_RUN), member_of_host(host)) then count(total, 'seen' .. HOSTS_RUN, 1) end
end

-- Why the budget of the whole crawl parks a URL of this host; '' when it does not.
local function crawl_reason(host, may_take_in)
  if may_take_in then take_in(host) end
  return (may_take_in or is_taken_in(host)) and '' or CRAWL_HOSTS .. ':' .. host
end

-- The totals, and what follows from them for hosts. The last that a script does.
local function write_hosts()
  local totals = write_totals()
  local hosts = totals['seen' .. HOSTS_RUN]
  if hosts then seen_grow(HOSTS_RUN, hosts) end
  return totals
end
