-- A domain's budget of hosts: so many are taken in, URLs of further ones are deferred. Store n: domain -> how many of its hosts
-- were taken in, and 'domain label' for each of those; of 'www.example.com' the label is 'www', '@' for the domain itself.
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
  if not taken_labels[name] and not compact_get('n', name) then
    local n = tonumber(compact_get('n', domain) or nil) or 0
    if n >= hosts_max and not is_given then return false end
    compact_put('n', name, '')
    compact_put('n', domain, n + 1)
  end
  taken_labels[name] = true
  return true
end

-- A budget of URLs that grows as other domains link to a queue: LINK_PLACES bits in its record (links), seven to a character,
-- one for each linking domain by its hash. So two domains may count as one, and no more than LINK_PLACES ever count.
local LINK_PLACES = 224
local RELEASE_MAX = 256 -- URLs a call
local linked -- queue -> places that are to be noted
--@each linked = {}

-- A queue whose budget may have grown, and the place of the domain that links to it: 0 to LINK_PLACES - 1, or -1 for none.
local function note_link(queue, place)
  if place < 0 then return end
  linked[queue] = linked[queue] or {}
  table.insert(linked[queue], place)
end

-- Its budget was grown by more than one call could release, perhaps: so it is looked at when a URL of it is done.
local function look_again(queue) linked[queue] = linked[queue] or {} end

local function write_links()
  for queue, places in pairs(linked) do
    local r = record_of(queue)
    for _, place in ipairs(places) do
      local links = r[MORE].links or string.rep('\0', LINK_PLACES / 7)
      local at, bit = math.floor(place / 7) + 1, 2 ^ (place % 7)
      local byte = string.byte(links, at)
      if math.floor(byte / bit) % 2 == 0 then
        set_more(r, 'links', string.sub(links, 1, at - 1) .. string.char(byte + bit) .. string.sub(links, at + 1))
      end
    end
  end
end

-- How many URLs of a queue a budget of URLs takes in.
local function urls_max_of(r, quota)
  local n, more = 0, quota[AddQuotaArgs.urls_per_linking_domain]
  local links = more > 0 and r[MORE].links or ''
  for i = 1, #links do
    local byte = string.byte(links, i)
    while byte > 0 do
      n, byte = n + byte % 2, math.floor(byte / 2)
    end
  end
  return quota[AddQuotaArgs.urls] + n * more
end

-- What grown budgets take in now of the URLs that they deferred.
local function follow_links(quota, default_delay_ms)
  local left = RELEASE_MAX
  for queue in pairs(linked) do
    local r = record_of(queue)
    local n = math.min(left, room_beside(r, 'urls', urls_max_of(r, quota)))
    if n > 0 then left = left - release_best(r, 'urls', n, default_delay_ms) end
    if r[N] == 0 then settle(r, 0, 0, -1) end -- an idle one goes back to its store
  end
end
