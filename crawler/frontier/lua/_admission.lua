-- A domain's quota of hosts: URLs of hosts beyond it are deferred. Store n: domain -> number of its admitted hosts, and
-- 'domain label' for each of them; the label of 'www.example.com' is 'www', that of the domain itself is '@'.

-- The host of an item of add: from its origin, or from the letter of its member.
local function host_in(queue, member, origin)
  if origin ~= '' then return (string.gsub(string.match(origin, '//(.*)$'), ':%d+$', '')) end
  local letter = string.sub(member, 1, 1)
  return (letter == '#' or letter == '$') and 'www.' .. queue or queue
end

local takes_host
do
  local function label_of(domain, host)
    if host == domain then return '@' end
    local behind = '.' .. domain
    return string.sub(host, -#behind) == behind and string.sub(host, 1, -#behind - 1) or host
  end

  -- Is this host admitted, before or by this call? Hosts of seeds always are.
  function takes_host(domain, host, hosts_max, is_given)
    local name = domain .. ' ' .. label_of(domain, host)
    if not ctx.taken_labels[name] and not compact_get('n', name) then
      local n = tonumber(compact_get('n', domain) or nil) or 0
      if n >= hosts_max and not is_given then return false end
      compact_put('n', name, '')
      compact_put('n', domain, n + 1)
    end
    ctx.taken_labels[name] = true
    return true
  end
end

-- A quota of URLs that grows as other domains link to a queue: LINK_PLACES bits in its record (links), seven to a character,
-- one for each linking domain by its hash. So two domains may count as one, and no more than LINK_PLACES ever count.
local LINK_PLACES = 224

-- Note that a domain links to a queue, whose quota may grow. place: that of the domain, 0 to LINK_PLACES - 1, or -1 for none.
local function note_link(queue, place)
  if place < 0 then return end
  ctx.linked[queue] = ctx.linked[queue] or {}
  table.insert(ctx.linked[queue], place)
end

-- Check a queue again when one of its URLs is done: its quota may have grown by more than one call can release.
local function look_again(queue) ctx.linked[queue] = ctx.linked[queue] or {} end

local function write_links()
  for queue, places in pairs(ctx.linked) do
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

-- How many URLs of a queue its quota admits.
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

local follow_links
do
  local RELEASE_MAX = 256 -- URLs a call

  -- Release deferred URLs that grown quotas admit now.
  function follow_links(quota, default_delay_ms)
    local left = RELEASE_MAX
    for queue in pairs(ctx.linked) do
      local r = record_of(queue)
      local n = math.min(left, room_beside(r, 'urls', urls_max_of(r, quota)))
      if n > 0 then left = left - release_best(r, 'urls', n, default_delay_ms) end
      settle_idle(r)
    end
  end
end
