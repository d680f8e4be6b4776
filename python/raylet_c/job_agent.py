"""Job submission at a node: the routes of Ray's own job agent, served alone, for a node whose agent is the daemon.

The daemon starts this when somebody asks for /api/job_agent and hands such connections on. It ends by itself when nobody asked
for a minute and no job that was submitted here is watched any more. Works with Ray 2.35.0 and 2.60.0.
"""
import asyncio
import os
import sys
import time
import types

IDLE_S = 60


def clients(ray_version, gcs_address, cluster_id):
    """What JobAgent takes from the agent around it, by release."""
    if ray_version == "2.35.0":
        from ray._private.gcs_utils import GcsAioClient

        return {"gcs_aio_client": GcsAioClient(address=gcs_address)}
    from ray._raylet import GcsClient

    return {"gcs_client": GcsClient(address=gcs_address, cluster_id=cluster_id)}


async def serve(ip, port, gcs_address, log_dir, session_name, cluster_id):
    import ray
    from aiohttp import web
    from ray.dashboard.modules.job.job_agent import JobAgent, routes

    around = types.SimpleNamespace(
        gcs_address=gcs_address, log_dir=log_dir, session_name=session_name, is_head=False,
        **clients(ray.__version__, gcs_address, cluster_id))
    agent = JobAgent(around)
    routes.bind(agent)
    open_requests, last = 0, time.monotonic()

    @web.middleware
    async def count(request, handler):
        nonlocal open_requests, last
        open_requests += 1
        try:
            return await handler(request)
        finally:
            open_requests -= 1
            last = time.monotonic()

    app = web.Application(client_max_size=100 * 1024**2, middlewares=[count])
    app.add_routes(r for r in routes.bound_routes() if "/api/job_agent/" in getattr(r, "path", ""))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, ip, port).start()
    while True:
        await asyncio.sleep(1)
        manager = agent._job_manager
        watched = manager.monitored_jobs if manager else ()
        if not open_requests and not watched and time.monotonic() - last > IDLE_S:
            return


async def end_with_daemon():
    """The daemon holds the other end of stdin."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    os._exit(0)


async def main(ip, port, *rest):
    watch = asyncio.ensure_future(end_with_daemon())
    await serve(ip, int(port), *rest)
    watch.cancel()


if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p]  # -c puts the current folder there
    asyncio.run(main(*sys.argv[1:]))
    os._exit(0)  # the thread that reads stdin would wait
