-- Slurm's submit filter in Lua (job_submit/lua), for sites that cannot compile job_submit/rtsched.
--
-- Lua has no sockets and does not see --deadline, so nothing is judged while the user waits. A job
-- that visibly wants a promise is held ("parked") until the daemon has judged it: then it is released
-- with a promise, or cancelled with the reason in its comment. Seen are #SBATCH --deadline lines of
-- the script, SBATCH_DEADLINE in the job's environment, and words rtsched: in --comment or --extra.
-- README.md states what that leaves out.
--
-- A site with a job_submit.lua of its own calls rtsched_submit and rtsched_modify from it first.

local DAEMON_USER = "rtsched"
local PREFIX = "rtsched_" -- of the daemon's own reservations
local SHARE_NODES = false -- as share_nodes in the daemon's site.toml

local PARKED, UNJUDGED = "rtsched:parked", "rtsched:unjudged"

local function uid_of(user)
	local file = io.open("/etc/passwd")
	local found
	for line in file and file:lines() or function() end do
		local name, uid = line:match("^([^:]*):[^:]*:(%d+):")
		if name == user then
			found = tonumber(uid)
		end
	end
	if file then
		file:close()
	end
	return found
end

local daemon_uid = uid_of(DAEMON_USER)

local function is_ours(uid)
	return uid == 0 or uid == daemon_uid
end

local function has_word(text)
	return text ~= nil and text:find("rtsched:", 1, true) ~= nil
end

local function names_our_reservation(names)
	for name in (names or ""):gmatch("[^,]+") do
		if name:gsub("^[%s+=-]+", ""):lower():match("^" .. PREFIX .. "%d+%s*$") then
			return true
		end
	end
	return false
end

-- Options count up to the first line that is neither empty nor a comment, as for sbatch.
local function script_has_deadline(script)
	for line in (script or ""):gmatch("[^\n]*") do
		if line:match("^#SBATCH%s+.*%-%-deadline[%s=]") then
			return true
		end
		if line:match("^%s*[^%s#]") then
			return false
		end
	end
	return false
end

local function wants_promise(job)
	if has_word(job.comment) or has_word(job.extra) or script_has_deadline(job.script) then
		return true
	end
	local environment = job.environment
	return environment ~= nil and environment["SBATCH_DEADLINE"] ~= nil
end

local function forged(job, uid)
	if is_ours(uid) then
		return false
	end
	if names_our_reservation(job.reservation) then
		slurm.log_user("rtsched: this reservation keeps nodes free for a promised job; no other "
			.. "job may use it. Leave --reservation out")
		return true
	end
	if (job.admin_comment or ""):match("^%s*rtsched:") then
		slurm.log_user("rtsched: an admin comment that begins with rtsched: is written by the "
			.. "rtsched daemon only")
		return true
	end
	return false
end

-- Whether a job that waits held is to get whole nodes, as in job_submit_rtsched.c.
local function takes_whole_nodes(job)
	if job.array_inx then
		return false
	end
	local one_node = job.max_nodes == 1 or job.num_tasks == 1
	local waits = (job.begin_time or 0) > os.time() or (job.dependency or "") ~= ""
	local component = job.het_job_offset ~= nil and job.het_job_offset ~= slurm.NO_VAL
	return not SHARE_NODES or not one_node or waits or component
end

function rtsched_submit(job, uid)
	if forged(job, uid) then
		return slurm.ERROR
	end
	if (uid ~= 0 and is_ours(uid)) or not wants_promise(job) then
		return slurm.SUCCESS
	end
	if job.priority == 0 then -- its user holds it: the daemon would release what is parked
		job.admin_comment = UNJUDGED
		return slurm.SUCCESS
	end
	job.priority = 0
	if takes_whole_nodes(job) then
		job.shared = 0 -- later it cannot be set
	end
	job.admin_comment = PARKED
	slurm.log_user("rtsched: the job is held until it has been evaluated")
	return slurm.SUCCESS
end

-- What a promise rests on, and the number that means "not changed".
local NUMBERS = {
	time_limit = slurm.NO_VAL, time_min = slurm.NO_VAL, min_nodes = slurm.NO_VAL,
	max_nodes = slurm.NO_VAL, min_cpus = slurm.NO_VAL, max_cpus = slurm.NO_VAL,
	num_tasks = slurm.NO_VAL, priority = slurm.NO_VAL, nice = slurm.NO_VAL,
	cpus_per_task = slurm.NO_VAL16, ntasks_per_node = slurm.NO_VAL16, shared = slurm.NO_VAL16,
	contiguous = slurm.NO_VAL16, pn_min_cpus = slurm.NO_VAL16, pn_min_memory = slurm.NO_VAL64,
	begin_time = 0,
}
local TEXTS = {
	"account", "partition", "qos", "reservation", "features", "dependency", "licenses",
	"req_nodes", "exc_nodes", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
}

local function touches_promise(job)
	for name, unchanged in pairs(NUMBERS) do
		local value = job[name]
		if value ~= nil and value ~= unchanged then
			return name
		end
	end
	for _, name in ipairs(TEXTS) do
		if job[name] ~= nil then
			return name
		end
	end
	if has_word(job.comment) or has_word(job.extra) then
		return "a word rtsched:"
	end
	return nil
end

function rtsched_modify(job, record, uid)
	if is_ours(uid) then
		return slurm.SUCCESS
	end
	if forged(job, uid) then
		return slurm.ERROR
	end
	local mark = record.admin_comment or ""
	local touched = touches_promise(job)
	if mark:match("^rtsched:") and mark ~= UNJUDGED and touched then
		slurm.log_user("rtsched: " .. touched .. " cannot be changed: the job "
			.. (mark == PARKED and "has not been evaluated yet" or "was given a promise")
			.. ". Cancel it and submit it again")
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, uid)
	return rtsched_submit(job, uid)
end

function slurm_job_modify(job, record, partitions, uid)
	return rtsched_modify(job, record, uid)
end

return slurm.SUCCESS
