"""Commands that read and write files of other tools, and that help to write the first one."""
