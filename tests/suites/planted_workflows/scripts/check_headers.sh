#!/bin/sh
echo headers "$@"
