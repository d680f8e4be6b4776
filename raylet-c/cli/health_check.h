/* `raylet-c health-check`: does a head answer, and is it of this environment's release? As `ray health-check` (KubeRay's init
 * container runs that in a loop), without Python. */
#ifndef RC_CLI_HEALTH_CHECK_H
#define RC_CLI_HEALTH_CHECK_H

/* The words after "health-check". 0: healthy; 1: not, with one line on stderr; 2: wrong words. */
int rc_health_check_command(int argc, char **argv);

#endif
